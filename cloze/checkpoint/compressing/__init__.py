"""`cloze compress`: a smaller, sparser or coarser checkpoint of a checkpoint, by what probes have measured."""
