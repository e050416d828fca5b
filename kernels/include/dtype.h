// The element types of the kernels, as launchers are told them.
#pragma once

enum class DType { float32, bfloat16 };
