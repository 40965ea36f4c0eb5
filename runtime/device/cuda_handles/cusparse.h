// The types of cuSPARSE that Torch's headers name, for a build without cuSPARSE's own header, which
// comes with a library of hundreds of megabytes. None of its functions is called here.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
