"""Reports as single HTML pages, without scripts and network: inline SVG, light and dark, printable."""
