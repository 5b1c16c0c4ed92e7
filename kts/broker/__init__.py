"""A small Kafka broker over a log directory: one machine, loopback, for tests and migration.

Each part imports only the parts above it::

    codes       error codes
    wire/       API keys; requests and responses as bytes
    settings/   the settings of a broker and its topics
    topics/     topics and partitions in a log directory
    groups/     members, generations, committed offsets
    (modules)   shared by handlers: the partitions that a request names, assignments, resources, the missing
                authorizer; reading, checking and converting records, waiting, threads
    extensions  private versions of APIs, which something outside answers
    broker      the state of a broker: topics, groups, producer ids
    handlers/   a file for each API, by its key and name
"""
