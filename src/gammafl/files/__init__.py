"""Files that outlive a crash, a full disk and a forger."""
