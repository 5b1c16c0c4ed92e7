"""The group coordinator: who is a member of which group, what they agreed on, and the offsets they committed."""

from kts.broker.groups.coordinator import Coordinator
from kts.broker.groups.registry import GroupSettings

__all__ = ["Coordinator", "GroupSettings"]
