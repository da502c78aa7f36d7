"""Work that runs on other machines: rows of batches asked for by a trainer, made by workers, sent back as typed frames."""
