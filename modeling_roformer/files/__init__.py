"""Files of any folder: read up to a maximum size, and what killed processes left."""
