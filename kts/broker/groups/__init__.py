"""The group coordinator: members, generations, assignments and committed offsets."""

from kts.broker.groups.coordinator import Coordinator
from kts.broker.groups.registry import GroupSettings

__all__ = ["Coordinator", "GroupSettings"]
