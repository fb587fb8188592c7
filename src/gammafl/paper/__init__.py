"""The paper's figures and tables, each a declaration."""
