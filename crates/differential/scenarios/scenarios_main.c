/* The multi-call binary:
 *   scenarios --list             one line for each scenario: family, name, shape, file, summary
 *   scenarios --far              the far end of a duet, obeying descriptor 200
 *   scenarios --actor NUMBER     an actor of a random sequence, obeying the stage
 *   scenarios --helper NAME ...  small programs that scenarios exec
 *   scenarios NAME               the scenario, its transcript on standard output
 */
#include "laboratory.h"

static struct scenario *first, **last = &first;

void scenario_register(struct scenario *scenario)
{
    *last = scenario;
    last = &scenario->next;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (struct scenario *scenario = first; scenario; scenario = scenario->next)
            printf("%s\t%s\t%u\t%s\t%s\n", scenario->family, scenario->name, scenario->shape, basename(scenario->file), scenario->summary);
        return 0;
    }
    if (argc >= 3 && strcmp(argv[1], "--helper") == 0)
        return run_helper(argc - 2, argv + 2);
    if (argc >= 3 && strcmp(argv[1], "--actor") == 0) {
        actor_main(atoi(argv[2]), argc > 3 ? argv[3] : NULL);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--far") == 0) {
        signal(SIGPIPE, SIG_IGN);
        far_serve(200, 201);
        return 0;
    }
    for (struct scenario *scenario = first; argc == 2 && scenario; scenario = scenario->next)
        if (strcmp(scenario->name, argv[1]) == 0) {
            raw_call(SYS_dup3, 1, 199, O_CLOEXEC, 0, 0, 0);
            const char *far = getenv("LABORATORY_FAR");
            if (far && strcmp(far, "thread") == 0)
                far_start_thread();
            scenario->body();
            note_inboxes();
            say("END");
            return 0;
        }
    fprintf(stderr, "usage: scenarios --list | --far | --actor NUMBER | NAME\n");
    return 2;
}
