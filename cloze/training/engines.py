"""The engines there are; importing this registers them. None of them imports numba before it begins."""
