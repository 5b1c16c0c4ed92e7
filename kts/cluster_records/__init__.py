"""Records of ``__cluster_metadata``, the log in which KRaft keeps brokers, topics and settings."""
