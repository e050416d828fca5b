"""The decode kernel of Llama's family, generated from a model's configuration: README.md."""
