// Nothing: its target only carries the precompiled header of the tests.
