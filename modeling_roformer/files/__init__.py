"""Files of any folder: read up to a maximum size, and written so that each appears complete or not at all."""
