"""How the commands write: to a terminal, a pager or a file, as text, tables or JSON."""
