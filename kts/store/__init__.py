"""Where files lie: the protocol of stores, the disk of this machine, and compressed logs."""
