/* The front of the fake `nvidia-cuda-mps-control`: quick to start, since the agent runs it for every question.
 *
 * `-d` starts the daemon (daemon.py) in the background. Otherwise commands go from stdin to the daemon's socket
 * $CUDA_MPS_PIPE_DIRECTORY/control, and its answers to stdout.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int reach(const char *pipe) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipe) >= (int)sizeof address.sun_path) return -1;
  int line = socket(AF_UNIX, SOCK_STREAM, 0);
  if (line >= 0 && connect(line, (struct sockaddr *)&address, sizeof address) < 0) {
    close(line);
    return -1;
  }
  return line;
}

static int pour(int from, int into) {
  char text[4096];
  ssize_t got;
  while ((got = read(from, text, sizeof text)) > 0)
    for (ssize_t sent = 0, step; sent < got; sent += step)
      if ((step = write(into, text + sent, (size_t)(got - sent))) < 0) return -1;
  return (int)got;
}

int main(int count, char **arguments) {
  const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (!pipe) pipe = "/tmp/nvidia-mps";
  int line = reach(pipe);
  if (count > 1 && !strcmp(arguments[1], "-d")) {
    if (line >= 0) {
      puts("An instance of this daemon is already running");
      return 1;
    }
    pid_t child = fork();
    if (child < 0) return 1;
    if (child) return 0;
    setsid();
    int nothing = open("/dev/null", O_RDWR);
    for (int at = 0; at < 3; at++) dup2(nothing, at);
    execl(PYTHON, PYTHON, "-I", "-S", DAEMON, SERVER, OWNER, (char *)NULL);
    return 1;
  }
  if (line < 0) {
    puts("Cannot find MPS control daemon process");
    return 1;
  }
  if (pour(STDIN_FILENO, line) < 0) return 1;
  shutdown(line, SHUT_WR);
  return pour(line, STDOUT_FILENO) < 0 ? 1 : 0;
}
