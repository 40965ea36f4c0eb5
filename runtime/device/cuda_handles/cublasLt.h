// The types of cuBLASLt that Torch's headers name, for a build without cuBLASLt's own header, which
// comes with a library of hundreds of megabytes. None of its functions is called here.
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
