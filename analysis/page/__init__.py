import logging

# Where the home folder cannot be written, matplotlib keeps its cache elsewhere, and logs that twice.
_CACHE = ("mkdir -p failed for path", "Matplotlib created a temporary cache directory")
logging.getLogger("matplotlib").addFilter(lambda record: not record.getMessage().startswith(_CACHE))
