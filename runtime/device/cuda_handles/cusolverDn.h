// The types of cuSOLVER that Torch's headers name, for a build without cuSOLVER's own header, which
// comes with a library of hundreds of megabytes. None of its functions is called here.
#pragma once
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
