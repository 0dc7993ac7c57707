/* Prints what the header says of sizes, places and numbers, a line each, for tests/c.rs. */
#include <stdio.h>
#include <string.h>
#include <weir.h>

#define FIELD(name) \
    printf(#name " %zu %zu\n", offsetof(struct weir_completion, name), \
           sizeof(((struct weir_completion *)0)->name))

int main(void) {
    FIELD(user_data);
    FIELD(error_msg);
    FIELD(ret);
    FIELD(flags);
    FIELD(reserved);
    printf("size %zu\n", sizeof(struct weir_completion));
    printf("version %d\n", strcmp(weir_version(), WEIR_VERSION));
    printf("abi %d %d\n", weir_abi(), WEIR_ABI);
    return 0;
}
