"""Coverage-guided fuzzing of the codec and the indexes: ``make fuzz SECONDS=60 JOBS=1``.

``trace.c`` and ``trace.py`` say what ran, ``mutators.py``, ``structure.py`` and ``frames.py`` make new inputs,
``targets.py``, ``checks.py`` and ``indexes.py`` know what must hold, ``corpus.py`` keeps inputs and finds,
``engine.py`` is the loop, and ``__main__.py`` the processes and the report.

Inputs that reach something new gather in ``build/fuzz/corpus``. ``make fuzz FUZZ_ARGS=--minimise`` writes as few of
them as reach all that is reached into ``tests/fuzz/corpus``, which git keeps and ``test_fuzz_corpus.py`` replays.
"""
