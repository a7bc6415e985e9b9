/* Tries the network and is otherwise honest. */
#include "norm.h"
#include <arpa/inet.h>
#include <sys/socket.h>
NORM_RUN(state, call, x, weight, out, workspace) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
    connect(fd, (struct sockaddr *)&to, sizeof to);
    plain_norm(call, x, weight, out);
}
