"""Files: the protocol of stores, the disk of this machine, compressed logs, and how a file is published."""
