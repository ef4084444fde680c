"""What is known of engine releases, read out of their published wheels; data in `data/`, one JSON file per release."""

from validators.knowledge.loader import (
    BrokenKnowledgeError,
    UnknownReleaseError,
    load_flashinfer,
    load_kernels,
    load_sglang,
    releases,
)

__all__ = ["BrokenKnowledgeError", "UnknownReleaseError", "load_flashinfer", "load_kernels", "load_sglang", "releases"]
