"""A small Kafka broker over a log directory: one machine, loopback, for tests, replicas and migration.

One direction; each of these uses only what stands above it::

    codes       error codes, API keys
    wire/       requests and responses as bytes
    settings/   what a broker and its topics are set to
    topics/     topics and partitions in a log directory
    groups/     members, generations, committed offsets
    (modules)   what handlers have in common: reading, checking and converting records, waiting, threads
    handlers/   one function for each API
    broker      all of it together, without a socket
    following/  copies that follow a leader, and the client they ask with; of the above: codes, wire, topics
"""
