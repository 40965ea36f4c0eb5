// Nothing: its targets only carry the precompiled headers of the libraries and the tests.
