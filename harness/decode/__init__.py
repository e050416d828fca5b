"""GPT-2 one token at a time, by engines that do the same with less and less of the host: see engines.py."""
