"""Sources of single files: folders, lists, tables, VOC annotations."""
