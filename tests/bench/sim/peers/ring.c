// TIMES times: WORK microseconds of work, and a ring all-reduce of BYTES, hop by hop. Rank 0 prints
// how many seconds that took. For SimGrid's SMPI, in which usleep() and the clock are simulated.
//
// usage: ring TIMES WORK BYTES
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char sent[1 << 20], received[1 << 20];

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4 || atoi(argv[3]) / ranks > (int)sizeof sent) MPI_Abort(MPI_COMM_WORLD, 2);
  const int times = atoi(argv[1]), work = atoi(argv[2]), chunk = atoi(argv[3]) / ranks;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

  const double begin = MPI_Wtime();
  for (int time = 0; time < times; ++time) {
    if (work > 0) usleep(work);
    for (int hop = 0; hop < 2 * (ranks - 1); ++hop)
      MPI_Sendrecv(sent, chunk, MPI_BYTE, next, 0, received, chunk, MPI_BYTE, previous, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 0) printf("%.12f\n", MPI_Wtime() - begin);
  MPI_Finalize();
  return 0;
}
