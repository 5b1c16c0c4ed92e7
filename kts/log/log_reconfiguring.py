"""Other topic settings for a log that is open: at once, for what is appended and asked from then on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kts.config import LogConfig
from kts.log.epochs import LeaderEpochs
from kts.log.log_changing import ChangingLog
from kts.segment import files
from kts.segment.index import TimeIndexFile
from kts.segment.names import LEADER_EPOCHS


class ReconfigurableLog(ChangingLog):
    """A log whose settings change; see ``Log``."""

    def reconfigure(self, config: LogConfig | Mapping[str, Any] | None) -> None:
        """Follow other settings from now on; what was written stays as it is.

        Parameters
        ----------
        config : LogConfig or mapping, optional
            All of the topic's settings: what is not named goes back to its default.

        Raises
        ------
        TypeError, ValueError
            A bad setting; nothing has changed then.
        LogStorageError
            The disk fails; the log closes if it is in doubt what is on it.

        Notes
        -----
        Index spacing and size, jitter and preallocation hold from the next segment on, all else at once, the message
        format for what is appended. Where the generation changes with the format, or times before 1970 begin or
        cease to count, the segments are closed and loaded anew; readers wait meanwhile.

        Source: UnifiedLog.updateConfig, LocalLog.updateConfig (3.9).
        """
        with self._lock:
            self._writable()
            new, old = LogConfig.of(config, generation=self._pinned_generation), self.config
            if new.segment_index_bytes < TimeIndexFile.entry_bytes:
                found = f"found {new.segment_index_bytes}"
                raise ValueError(f"segment.index.bytes: expected at least {TimeIndexFile.entry_bytes}, {found}")
            if (new.generation, new.allow_negative_timestamps) != (old.generation, old.allow_negative_timestamps):
                with self._or_fail(), self._readers.alone():
                    self._load_again(new)
                return
            if (new.magic < 2) != (old.magic < 2) and new.generation != "0.10.2":
                self._change_epochs(new.magic)
            self.config = new

    def _change_epochs(self, magic: int) -> None:
        """Batches of magic 2 alone have a leader epoch."""
        with self._or_fail():
            if magic < 2:
                files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        self._epochs = LeaderEpochs(self.path) if magic == 2 else None

    def _load_again(self, config: LogConfig) -> None:
        before = {segment.base_offset: segment for segment in self._view.segments}
        self._write_all()
        if config.magic < 2 or self.config.magic < 2:  # an epoch of the batches of magic 2 says nothing of the others
            files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        self.config, self.generation = config, config.generation
        self.recovered = self.recovered + self._load(self._clock(), True, self._log_start, self._end)
        for segment in self._view.segments:
            if segment.base_offset in before:
                segment.go_on_from(before[segment.base_offset])
