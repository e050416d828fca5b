"""Our kernels inside other people's programs."""

import importlib.metadata


def hidden_package() -> str:
    """Say which version of the Hugging Face package `kernels` is installed; "" if none is.

    transformers imports that package if it is installed. Python finds this repository's folder of the same name first,
    and `import transformers` fails.
    """
    try:
        return importlib.metadata.version("kernels")
    except importlib.metadata.PackageNotFoundError:
        return ""
