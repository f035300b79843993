"""`cloze finetune`: a checkpoint, a task and labelled rows → a run, and what is measured of it."""
