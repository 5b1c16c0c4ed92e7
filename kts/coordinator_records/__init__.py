"""Records of the topics that Kafka's coordinators write: ``__consumer_offsets`` and ``__transaction_state``."""
