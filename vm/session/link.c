/* link.c -- the lists in which a VM keeps what was made from it, so that sgl_close frees what a host forgot.
 *
 * Comes in: a link, the first member of what is listed. Goes out: the list with it or without it, in constant time. */
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
