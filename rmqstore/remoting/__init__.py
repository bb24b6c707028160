"""What a broker says over its ports: the remoting protocol and the HA protocol. Nothing here knows files."""
