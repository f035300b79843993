"""What is inside a network: attention, predictions and neighbours by layer, and probes that measure what its states hold."""

from cloze.probes.look import Seen, look

__all__ = ["Seen", "look"]
