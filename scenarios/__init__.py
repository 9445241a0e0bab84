"""What a user writes, until it is resolved: the library, the file format, plans."""
