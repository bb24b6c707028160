"""What the bytes of a damaged record may have been; checksums and witnesses decide whether a candidate is taken."""
