"""File system helpers: regular and sparse files, paths, and the meaning of I/O errors."""
