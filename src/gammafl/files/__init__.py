"""Reading and writing files safely: after a crash, on a full disk, and when a file is damaged or forged."""
