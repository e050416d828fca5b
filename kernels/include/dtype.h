// The element types that launchers take.
#pragma once

enum class DType { float32, bfloat16 };
