/* link.c -- what joins a VM and its host: the lists of what was made from it, so that sgl_close frees what a host forgot;
 * calls that are refused; texts that are handed over.
 *
 * Comes in: a link, the first member of what is listed; a reason; a text. Goes out: the list with it or without it, in
 * constant time; a message in the VM. */
#include "session/session.h"

void sglsession_link_in(sglsession_link **list, sglsession_link *link)
{
    link->next = *list;
    link->at = list;
    if (*list) (*list)->at = &link->next;
    *list = link;
}

void sglsession_link_out(sglsession_link *link)
{
    *link->at = link->next;
    if (link->next) link->next->at = link->at;
}

sgl_status sglsession_graph_take(sgl_vm *vm, sglir_graph *ir, sgl_graph **graph)
{
    sgl_graph *made = sglcore_alloc_zero(&vm->env, sizeof *made);
    if (!made) {
        sglir_graph_free(ir);
        return SGL_OUT_OF_MEMORY;
    }
    made->vm = vm;
    made->ir = ir;
    sglsession_link_in(&vm->graphs, &made->link);
    *graph = made;
    return SGL_OK;
}

sgl_status sglsession_refuse(sgl_vm *vm, const char *call, const char *what)
{
    return vm ? sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "%s: %s", call, what) : SGL_INVALID_ARGUMENT;
}

sgl_status sglsession_hand(sgl_vm *vm, const char *call, const sglcore_text *text, sgl_write_fn write, void *user)
{
    vm->env.message[0] = 0; /* so that one of the writer's own is told from an older one */
    sgl_status status = write(user, text->data, (size_t)text->count);
    if (status == SGL_OK || vm->env.message[0]) return status;
    return sglcore_fail(&vm->env, status, "%s: the writer could not take the text: %s", call, sgl_status_text(status));
}
