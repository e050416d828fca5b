"""What runs inside a profiled program: the recorder of ranges, automatic ranges and the dataflow."""
