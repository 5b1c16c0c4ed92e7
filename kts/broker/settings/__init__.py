"""Settings of a broker and its topics by Kafka's names: types, defaults, limits, and their descriptions."""
