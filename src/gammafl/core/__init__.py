"""The mathematics between vectors and messages. Without torch, without files."""
