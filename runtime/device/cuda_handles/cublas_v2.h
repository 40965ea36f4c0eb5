// The types of cuBLAS that Torch's headers name, for a build without cuBLAS's own header, which
// comes with a library of hundreds of megabytes. None of its functions is called here.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
