"""Profile a program, from its first run to the report: the driver of `make profile`.

It parses the options once, plans in its own process, and hands complete argument lists to the scripts of nsys_scripts/.
"""
