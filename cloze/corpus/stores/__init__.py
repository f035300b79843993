"""Token stores: text is read, encoded and written block by block, and opened as memory-mapped files."""
