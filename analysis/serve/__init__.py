"""Answer the questions of a language model about captures, read-only, by the Model Context Protocol."""
