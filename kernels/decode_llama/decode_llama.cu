// decode_llama: a decode step of a model of Llama's family, in one launch for many tokens.
// Shapes   of the constants below; device.py writes a source like this one from a model's configuration.
// Needs    sm_90, bf16 weights, one block for each multiprocessor, all at once
// Moves    every weight once per token, and the keys and values of the context.
// Versus   one launch per operation: here warps load weights while they wait for activations.
#define MODEL_HIDDEN 2048
#define MODEL_LAYERS 16
#define MODEL_HEADS 32
#define MODEL_KV_HEADS 8
#define MODEL_SIZE 64
#define MODEL_INNER 8192
#define MODEL_VOCABULARY 128256
#define MODEL_BATCH 1
#define MODEL_QK_NORM false
#define MODEL_BLOCKS 132
#define MODEL_SLOT_UNITS 8
#define MODEL_LEAST_ROWS 128
#include "launch.cuh"
