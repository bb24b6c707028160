"""The disk below the files: regular files only, sparse files, paths, and errors in words."""
